"""The topics of a run on this machine: their names begin with the application's."""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.settings import PREFIX, ServiceSettings


def settings_for(bootstrap_servers: str, application: str) -> ServiceSettings:
    """Settings of an application whose topics all begin with its name, so that applications never mix.

    Security and the like come from the environment, as for every service.
    """
    return ServiceSettings(bootstrap_servers=bootstrap_servers, application=application, **_names(application))


def environment_of(settings: ServiceSettings) -> dict[str, str]:
    """The address and the names as environment of the services."""
    fields = ("bootstrap_servers", "application", *_names(settings.application))
    return {f"{PREFIX}{name.upper()}": getattr(settings, name) for name in fields}


def _names(application: str) -> dict[str, Any]:
    kinds = (
        *("events", "routed", "partials", "results", "late", "dead-letters", "distribution"),
        *("positions", "receipts"),
    )
    return {f"{kind.replace('-', '_')}_topic": f"{application}.{kind}" for kind in kinds}


async def delete_topics(admin: AIOKafkaAdminClient, prefix: str) -> None:
    """Deletes all topics whose names begin with the prefix."""
    doomed = [name for name in await admin.list_topics() if name.startswith(prefix)]
    if doomed:
        await admin.delete_topics(doomed)
