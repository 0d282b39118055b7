#!/bin/sh
# numba reads its cache only where it may write, and /app may be read-only.
mkdir -p "$NUMBA_CACHE_DIR" && cp -r /app/kernels/. "$NUMBA_CACHE_DIR" ||
    echo "no kernels copied to $NUMBA_CACHE_DIR: they are compiled again" >&2
exec "$@"
