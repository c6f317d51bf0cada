"""Serves moto's S3 on a free port of this machine, prints the port, ends when its standard input does."""

import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class OneAtATime:
    """Lets one PUT in at a time: moto looks whether a key is there and then stores it, which must be one step."""

    def __init__(self, app):
        self.app = app
        self.lock = threading.Lock()

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] != "PUT":
            return self.app(environ, start_response)
        if "--ignore-conditions" in sys.argv:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self.lock:
            return list(self.app(environ, start_response))


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *args):
        pass


app = OneAtATime(DomainDispatcherApplication(create_backend_app))
server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
print(server.port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
