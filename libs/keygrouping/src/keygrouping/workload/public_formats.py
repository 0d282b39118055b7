"""The layouts of public dumps: which keys, weights and sources their lines hold."""

from collections.abc import Iterable
from dataclasses import dataclass

from keygrouping.settings import setting
from keygrouping.workload.format import NO_SOURCE, BadLine, LineFormat, ParsedEvent, json_object, some_key, whole_number

_PAGES = b"http://en.wikipedia.org/wiki/"


@dataclass(frozen=True)
class Words(LineFormat):
    """Any text: every word, as white space separates them, is an event."""

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        return [(word, 1.0, NO_SOURCE) for word in line.split()]


@dataclass(frozen=True)
class Edges(LineFormat):
    """Edge lists of the Stanford Network Analysis Project: from-vertex, to-vertex; lines with # are comments.

    The key is the vertex that an edge goes to, the source that it comes from.
    """

    @property
    def sourced(self) -> bool:
        return True

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        if line.startswith(b"#"):
            return ()
        vertices = line.split()[:2]
        if len(vertices) < 2 or not all(map(bytes.isdigit, vertices)):
            raise BadLine("an edge is two numbers of vertices")
        return ((vertices[1], 1.0, vertices[0]),)


@dataclass(frozen=True)
class Ticker(LineFormat):
    """Ticker symbols in tweets: time, tab, symbol."""

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        return ((_timed_key(line), 1.0, NO_SOURCE),)


@dataclass(frozen=True)
class WikipediaVisits(LineFormat):
    """Single visits of pages: time, tab, address; the key is the page's name."""

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        return ((some_key(_timed_key(line).removeprefix(_PAGES)), 1.0, NO_SOURCE),)


@dataclass(frozen=True)
class WikiBench(LineFormat):
    """Access traces of wikibench.eu: number, time, address, flag, separated by spaces; the key is the address."""

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        fields = line.split()
        if len(fields) != 4:
            raise BadLine(f"4 fields are wanted, not {len(fields)}")
        if b"://" not in fields[2]:
            raise BadLine("the third field is no address")
        return ((fields[2], 1.0, NO_SOURCE),)


@dataclass(frozen=True)
class Pageviews(LineFormat):
    """Hourly page views of Wikimedia (pagecounts and pageviews): project, title, count, bytes.

    The key is project and title, the weight the count.
    """

    @property
    def weighted(self) -> bool:
        return True

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        project, title, count = _page_views(line)
        return ((project + b" " + title, count, NO_SOURCE),)


@dataclass(frozen=True)
class PageviewsByLanguage(LineFormat):
    """Hourly page views of Wikimedia; the key is the language, which is the project up to its first dot."""

    @property
    def weighted(self) -> bool:
        return True

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        project, _, count = _page_views(line)
        return ((project.partition(b".")[0], count, NO_SOURCE),)


@dataclass(frozen=True)
class Clickstream(LineFormat):
    """Clickstreams of Wikipedia by the page that clicks lead to; the weight is their count. Separated by tabs.

    Either prev, curr, type, n as in the monthly dumps, or prev_id, curr_id, n, prev_title, curr_title and perhaps type
    as in the releases of 2015. A line of column names may be anywhere.
    """

    @property
    def weighted(self) -> bool:
        return True

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        fields = line.split(b"\t")
        if len(fields) not in (4, 5, 6):
            raise BadLine(f"4 to 6 fields are wanted, not {len(fields)}")
        page, count = (fields[1], fields[3]) if len(fields) == 4 else (fields[4], fields[2])
        if count == b"n" and page in (b"curr", b"curr_title"):
            return ()
        return ((some_key(page), whole_number(count), NO_SOURCE),)


_ELECTION = (
    *("hilary", "hillary", "clinton", "withher", "wither", "lockherup", "donald", "trump"),
    *("vote", "voting", "poll", "election", "electon", "electoral", "eleicoes", "eleccion", "abdseçimleri"),
    *("president", "debate", "democrat", "republican", "america", "us"),
)
"""The words of the public code; those of its 27 that contain another one are left out."""


@dataclass(frozen=True)
class TwitterElection(LineFormat):
    """Tweets as JSON, one per line; every hashtag of `entities.hashtags` is an event.

    Hashtags that contain a word about the election become ElectionDay, as in the public code of "Dynamic Key Grouping"
    (odalabasmaz/DynamicKeyGrouping, TwitterElectionSplitter), which also leaves out hashtags with a question mark.
    Notices of the stream between the tweets are no bad lines.
    """

    rewrite: bool = setting(True, "whether hashtags about the election become ElectionDay")

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        tweet = json_object(line)
        if "limit" in tweet or "delete" in tweet:
            return ()
        try:
            tags = [str(tag["text"]) for tag in tweet["entities"]["hashtags"]]
        except (KeyError, TypeError):
            raise BadLine("a tweet has entities with hashtags") from None
        return [(self._key(tag), 1.0, NO_SOURCE) for tag in tags if "?" not in tag]

    def _key(self, tag: str) -> bytes:
        folded = tag.lower()
        return b"ElectionDay" if self.rewrite and any(word in folded for word in _ELECTION) else tag.encode()


def _timed_key(line: bytes) -> bytes:
    """The key of a time and a key with a tab between them."""
    time, tab, key = line.partition(b"\t")
    if not tab or not time.strip().isdigit():
        raise BadLine("a time, a tab and a key are wanted")
    return some_key(key.strip())


def _page_views(line: bytes) -> tuple[bytes, bytes, float]:
    """Project, title and count of a line."""
    fields = line.split(b" ")
    if len(fields) != 4:
        raise BadLine(f"4 fields are wanted, not {len(fields)}")
    whole_number(fields[3])
    return some_key(fields[0]), some_key(fields[1]), whole_number(fields[2])
