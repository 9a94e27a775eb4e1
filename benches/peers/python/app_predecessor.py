"""The routes of the measurements on the `justapi` that is on PyPI, which came before this one.

It shares the name of our package, so it has an environment of its own, which `predecessor.sh` makes.
Takes the port. Handlers are no coroutines and requests are not logged, which is what it is fastest
with.
"""

import os
import sys

os.environ.setdefault("RUST_LOG", "warn")

from justapi import JustAPIApp

app = JustAPIApp()


@app.get("/hello")
def hello(request):
    return {"message": "hello"}


app.run(f"127.0.0.1:{sys.argv[1]}")
