"""SVG as text. Whatever words go in are escaped, and cleaned of what turns the text around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from voicebench.reports.foreign import shown

LONGEST_WORDS = 2000
"""Of a picture's description."""


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An element. `class_` is `class`, other underscores are hyphens; attributes that are None are left out.

    >>> tag("text", "<b>", x=1.0, text_anchor="end")
    Markup('<text x="1" text-anchor="end">&lt;b&gt;</text>')
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_written(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    content = Markup().join(child if isinstance(child, Markup) else shown(child, LONGEST_WORDS) for child in children)
    return Markup(f"<{name}{written}>{content}</{name}>" if children else f"<{name}{written}/>")


def picture(width: float, height: float, title: str, description: str, *children: str, key: str) -> Markup:
    """A whole SVG that scales with its container, and says in words what it shows.

    Args:
        key: Unlike that of any other on the page.
    """
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def polyline(points: Iterable[tuple[float, float] | None]) -> str:
    """Path data through the points; None interrupts it. A point on its own is drawn as one.

    >>> polyline([(0, 1), (2, 3), None, (4, 5)])
    'M0 1L2 3M4 5h.01'
    """
    parts: list[str] = []
    run: list[str] = []
    for point in [*points, None]:
        if point is not None:
            run.append(f"{short(point[0])} {short(point[1])}")
            continue
        if run:
            parts.append(f"M{'L'.join(run)}" + ("h.01" if len(run) == 1 else ""))
        run = []
    return "".join(parts)


def short(value: float) -> str:
    """A coordinate to a tenth of a pixel.

    >>> short(3.0), short(2.345), short(-0.01)
    ('3', '2.3', '0')
    """
    return f"{round(value, 1) + 0.0:.1f}".rstrip("0").rstrip(".")


def ticks(most: float, about: int = 4) -> Sequence[int]:
    """Round whole numbers from 0 to at least `most`.

    >>> ticks(1170), ticks(0), ticks(0.8), ticks(7, 2)
    ([0, 500, 1000, 1500], [0, 1], [0, 1], [0, 5, 10])
    """
    rough = max(1.0, most / about)
    power = 10 ** int(math.log10(rough))
    step = next(int(each * power) for each in (1, 2, 2.5, 5, 10) if each * power >= rough and each * power % 1 == 0)
    return [step * n for n in range(max(1, math.ceil(most / step)) + 1)]


def _written(value: object) -> str:
    return short(value) if isinstance(value, float) else str(value)
