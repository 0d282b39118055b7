"""`helm test`: whether each part says that it is ready and has all that it needs. Arguments: base URLs.

What does not answer is asked again, for half a minute in all: a busy cluster's DNS may fail to tell a name.
"""

import json
import sys
import time
from urllib.error import HTTPError
from urllib.request import urlopen

end = time.monotonic() + 30


def asked(url: str) -> bytes:
    while True:
        try:
            with urlopen(url, timeout=10) as answer:
                sys.stdout.write(f"{url} {answer.status}\n")
                return bytes(answer.read())
        except OSError as error:
            if isinstance(error, HTTPError) or time.monotonic() > end:
                sys.exit(f"{url}: {error}")
        time.sleep(1)


faults = []
for url in sys.argv[1:]:
    asked(url + "/metrics")
    said = asked(url + "/readyz")
    # An app says it in words.
    store = (json.loads(said) if said.startswith(b"{") else {}).get("store") or {}
    if store.get("state") == "degraded":
        faults.append(f"{url}: {store['detail']}")
sys.exit("\n".join(faults) or None)
