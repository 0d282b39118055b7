"""Variables that Kubernetes makes of a namespace's services, which look like settings if the service's name does.

Of a service `keygrouping-redis`, every pod of its namespace is given `KEYGROUPING_REDIS_SERVICE_HOST`,
`KEYGROUPING_REDIS_PORT` and more, unless the pod's spec says `enableServiceLinks: false`.
"""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address

_HOST, _PORT = "_SERVICE_HOST", "_SERVICE_PORT"
_URL, _NUMBER = r"(?:tcp|udp|sctp)://\S+", r"[0-9]{1,5}"
_FORMS = (
    (r"_SERVICE_PORT(?:_[A-Z0-9_]+)?", _NUMBER),
    (r"_PORT", _URL),
    (r"_PORT_[0-9]{1,5}_(?:TCP|UDP|SCTP)", _URL),
    (r"_PORT_[0-9]{1,5}_(?:TCP|UDP|SCTP)_PROTO", r"(?:tcp|udp|sctp)"),
    (r"_PORT_[0-9]{1,5}_(?:TCP|UDP|SCTP)_PORT", _NUMBER),
    (r"_PORT_[0-9]{1,5}_(?:TCP|UDP|SCTP)_ADDR", r"[0-9a-fA-F.:]+"),
)


def service_links(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of which name and value are what Kubernetes makes of a service, and that service's name."""
    found: dict[str, str] = {}
    for service in _services(environment):
        found[service + _HOST] = _name(service)
        for name, value in environment.items():
            if name.startswith(service) and _is_link(name.removeprefix(service), value):
                found[name] = _name(service)
    return found


def collision(name: str, value: str, service: str) -> str:
    """What to do about a setting that a service's variable stands in for."""
    return (
        f"{name}: {value!r} is what Kubernetes has made of the service {service}: set enableServiceLinks: false in the "
        "pod's spec, or give the service another name"
    )


def _services(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        service = name.removesuffix(_HOST)
        if service != name and _is_address(value) and re.fullmatch(_NUMBER, environment.get(service + _PORT, "")):
            yield service


def _is_link(rest: str, value: str) -> bool:
    return any(re.fullmatch(form, rest) and re.fullmatch(values, value) for form, values in _FORMS)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _name(service: str) -> str:
    return service.lower().replace("_", "-")
