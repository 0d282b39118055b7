"""Your own function on your own topic; comes with the extra `keygrouping[app]`, the package `keygrouping-app`."""

try:
    from keygrouping_app import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "keygrouping_app":
        raise
    raise ModuleNotFoundError(
        "keygrouping.app needs keygrouping-app: in the repository's folder, pip install ./libs/app ./libs/kafka"
    ) from None
