"""Under which section a key belongs that stands in another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


def place_of(key: object) -> str:
    """The end of an error message about `key`: the section that has it; empty where none does.

    >>> place_of("rpm"), place_of("model"), place_of("rmp")
    ('; it belongs under traffic', '; it belongs under judges.NAME.endpoints', '')
    """
    found = [
        section
        for section, kinds in _sections().items()
        if any(key in kind.__struct_fields__ for kind in kinds)
    ]
    return f"; it belongs under {' or '.join(found)}" if found else ""


def _sections() -> Mapping[str, Sequence[type[msgspec.Struct]]]:
    # Imported here, since the modules of these sections build themselves with `place_of`
    from zerowait.config import endpoint, schema, traffic

    return {
        "components.NAME": (
            schema.ScorerComponent,
            schema.JudgeComponent,
            schema.ShapeComponent,
        ),
        "judges.NAME": (schema.Judge,),
        "judges.NAME.endpoints": (endpoint.Endpoint,),
        "traffic": (traffic.Traffic,),
        "cache": (schema.Cache,),
        "record": (schema.Recording,),
    }
