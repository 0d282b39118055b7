"""`helm test`: whether each part says that it is ready and has all that it needs. Arguments: base URLs."""

import json
import sys
from urllib.request import urlopen

faults = []
for url in sys.argv[1:]:
    for path in ("/metrics", "/readyz"):
        with urlopen(url + path, timeout=10) as answer:
            sys.stdout.write(f"{url + path} {answer.status}\n")
            text = answer.read()
    store = json.loads(text).get("store") or {}
    if store.get("state") == "degraded":
        faults.append(f"{url}: {store['detail']}")
sys.exit("\n".join(faults) or None)
