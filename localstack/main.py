"""Runs LocalStack, on 127.0.0.1 only, for lib.sh.

LocalStack 4.8 uses only the port of an IPv4 address in GATEWAY_LISTEN and listens on every interface, without checking
credentials. If the port is taken, it continues without one, and its caller would talk to the program that has the port.
The endpoint is replaced by one that does neither.

LocalStack stores the S3 objects of all instances in one folder of /tmp, and never deletes them. That folder is replaced
by one of the instance.
"""

import os
import pathlib
import sys
import warnings

from botocore.config import Config

Config.OPTION_DEFAULTS["read_timeout"] = 900  # seconds, as patience in lib.sh

# twisted warns about a missing package that only TLS clients need.
warnings.filterwarnings("ignore", message=".*service_identity")

from twisted.internet import endpoints  # noqa: E402 (after the filter above)


class LoopbackEndpoint(endpoints.TCP4ServerEndpoint):
    def __init__(self, reactor, port):
        super().__init__(reactor, port, interface="127.0.0.1")

    def listen(self, factory):
        return super().listen(factory).addCallbacks(self._listening, self._failed)

    def _listening(self, port):
        pathlib.Path("listening").touch()  # lib.sh waits for this file in the working folder
        return port

    def _failed(self, failure):
        print(failure.getErrorMessage(), file=sys.stderr, flush=True)
        os._exit(1)


endpoints.TCP4ServerEndpoint = LoopbackEndpoint

from localstack.runtime.main import main  # noqa: E402 (after the replacement above)
from localstack.services.s3 import provider  # noqa: E402

provider.DEFAULT_S3_TMP_DIR = os.path.join(os.environ["TMP"], "s3")

main()
