"""A TCP proxy that knows Kafka's protocol: it delays, holds, reorders and loses whole requests, and cuts links.

    with Proxy([broker.port]) as proxy:
        client = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap_servers, transactional_id="a")
        commit = proxy.hold(lambda request: request.api is Api.END_TXN and request.committed)
        ...
        await commit.caught()       # the next commit is in the proxy, the broker has not seen it
        ...
        commit.release()            # now it goes to the broker, even if the client has given up long ago
        await commit.answered()

Clients that bootstrap at the proxy stay behind it, as the broker addresses in answers are rewritten; clients that
bootstrap at a broker bypass it, so a test's own clients can look on undisturbed. For one process that shall be cut off
alone, put a proxy of its own in front of the same brokers. Connections are plain text.
"""

from keygrouping_local.proxy.proxy import Cut, Proxy
from keygrouping_local.proxy.requests import Api, Request
from keygrouping_local.proxy.rules import Held, Match, Rule
from keygrouping_local.proxy.strays import Stray

__all__ = ["Api", "Cut", "Held", "Match", "Proxy", "Request", "Rule", "Stray"]
