"""The router's HTTP interface: one module per resource; what it asks and orders is a `Plane`."""

from keygrouping_router.api.app import router_app

__all__ = ["router_app"]
