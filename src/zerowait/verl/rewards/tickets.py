"""Tickets as they travel in verl's rows: a sample in place of its reward's details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.errors import DataError
from zerowait.types import Sample

PLACEHOLDER: Final = 0.0
"""The score in verl's row until its ticket is redeemed; it is never trained on or reported."""
_FIELD: Final = "ticket"

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode = msgspec.msgpack.Decoder(Sample).decode


def ticket(sample: Sample) -> dict[str, Any]:
    """The ``reward_extra_info`` of a row whose reward is fetched later."""
    return {_FIELD: _encode(sample)}


def ticket_in(extra_fields: Any) -> Sample | None:
    """The sample of the ticket in a row's ``extra_fields``; None for a row without a ticket.

    Raises:
        DataError: the ticket is damaged.
    """
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info") if isinstance(fields, Mapping) else None
    encoded = info.get(_FIELD) if isinstance(info, Mapping) else None
    if encoded is None:
        return None
    try:
        return _decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"a ticket in verl's rows is damaged: {error}") from None
