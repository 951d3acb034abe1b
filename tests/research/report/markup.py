"""Pages as trees, by the parser of the standard library, which shares nothing with what writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Element:
    """One element; ``content`` is its text and its children, in order."""

    tag: str
    attributes: dict[str, str]
    content: list[Element | str] = field(default_factory=list)

    def all(self, tag: str = "", wanted: Callable[[Element], bool] = lambda _: True) -> Iterator[Element]:
        """All elements below with this tag, in order."""
        left = self.content[::-1]
        while left:
            child = left.pop()
            if isinstance(child, Element):
                if (not tag or child.tag == tag) and wanted(child):
                    yield child
                left += child.content[::-1]

    def of_class(self, name: str) -> Iterator[Element]:
        """All elements below that have this class."""
        return self.all(wanted=lambda element: name in element.attributes.get("class", "").split())

    def text(self) -> str:
        """All words below, with single spaces."""
        parts = [child if isinstance(child, str) else child.text() for child in self.content]
        return " ".join("".join(parts).split())


class Reader(HTMLParser):
    """Builds the tree and insists that everything that is opened is closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].content.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


def parsed(page: str) -> Element:
    """The tree of a page or of a picture."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is not closed"
    return reader.root
