"""How the control document and its history stand in the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from keygrouping_router.control.history import Change, What
from keygrouping_router.control.orders import Action, KeyOverride, ShadowGrouping, Sharing, Values
from keygrouping_router.control.seeds import MOST_SEED
from keygrouping_router.control.state import SIZES_KEPT, Control
from keygrouping_router.limits import (
    LONGEST_OVERRIDDEN,
    MAX_OVERRIDES,
    MAX_SHADOWS,
    MAX_WORKERS,
    Capacity,
    Number,
    Time,
)
from keygrouping_router.naming import BASE64, base64_of, key_of


def _base64_of_a_key(digits: str) -> str:
    key_of(BASE64.decode() + digits)
    return digits


_Settings = Annotated[dict[str, JsonValue], Field(max_length=100)]
_Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
_Worker = Annotated[int, Field(ge=0, lt=MAX_WORKERS)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _StoredShadow(_Stored):
    name: str = Field(max_length=100)
    settings: _Settings = Field(default_factory=dict)


class _StoredOverride(_Stored):
    key_base64: Annotated[str, Field(max_length=LONGEST_OVERRIDDEN * 4 // 3 + 4), AfterValidator(_base64_of_a_key)]
    action: Action
    worker: _Worker | None = None
    width: Annotated[int, Field(ge=2, le=MAX_WORKERS)] | None = None
    until: Time


class _StoredControl(_Stored):
    grouping: str = Field(max_length=100)
    settings: _Settings = Field(default_factory=dict)
    sharing: Sharing = "independent"
    observe_only: bool = False
    workers: _Workers
    auto: bool = False
    capacities: dict[_Worker, Capacity] = Field(default_factory=dict)
    shadow: Annotated[tuple[_StoredShadow, ...], Field(max_length=MAX_SHADOWS)] = ()
    sample: float = Field(default=1.0, gt=0, le=1)
    base: Number = 0
    generation: Number = 0
    configured: _Settings = Field(default_factory=dict)
    began: Number = 0
    sizes: Annotated[tuple[tuple[Number, _Workers], ...], Field(max_length=SIZES_KEPT)] = ()
    overrides: Annotated[tuple[_StoredOverride, ...], Field(max_length=MAX_OVERRIDES)] = ()
    seed: Annotated[int | None, Field(ge=0, le=MOST_SEED)] = None


class _StoredChange(_Stored):
    at: Time
    by: str
    version: int = Field(ge=1)
    what: What
    before: Values
    after: Values


def control_to_data(control: Control) -> dict[str, Any]:
    """The document as JSON data."""
    return {
        "grouping": control.grouping,
        "settings": control.settings,
        "sharing": control.sharing,
        "observe_only": control.observe_only,
        "workers": control.workers,
        "auto": control.auto,
        "capacities": {str(worker): capacity for worker, capacity in control.capacities.items()},
        "shadow": [{"name": entry.name, "settings": entry.settings} for entry in control.shadow],
        "sample": control.sample,
        "base": control.base,
        "generation": control.generation,
        "configured": control.configured,
        "began": control.began,
        "sizes": [list(entry) for entry in control.sizes],
        "overrides": [_override_to_data(entry) for entry in control.overrides],
        "seed": control.seed,
    }


def control_from_data(data: Any) -> Control:
    """The document that gave the data; raises if it is none."""
    stored = _StoredControl.model_validate(data)
    members = {name: getattr(stored, name) for name in _StoredControl.model_fields}
    members["shadow"] = tuple(ShadowGrouping(entry.name, entry.settings) for entry in stored.shadow)
    members["overrides"] = tuple(map(_override_of, stored.overrides))
    return Control(**members)


def change_to_data(change: Change) -> dict[str, Any]:
    """An entry of the history as JSON data."""
    return asdict(change)


def change_from_data(data: Any) -> Change:
    """The entry that gave the data; raises if it is none."""
    return Change(**dict(_StoredChange.model_validate(data)))


def _override_to_data(entry: KeyOverride) -> dict[str, Any]:
    members = {"action": entry.action, "worker": entry.worker, "width": entry.width, "until": entry.until}
    return {"key_base64": base64_of(entry.key), **members}


def _override_of(stored: _StoredOverride) -> KeyOverride:
    key = key_of(BASE64.decode() + stored.key_base64)
    return KeyOverride(key, stored.action, stored.worker, stored.width, stored.until)
