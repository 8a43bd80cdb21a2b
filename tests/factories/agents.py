"""An agent that reports to the ledger of the test."""

import httpx

from metering.delivery import Delivery
from tests.agent.rig import Rig


class LedgerRig(Rig):
    """An agent that reports to the real platform."""

    address, token = "", ""

    def start(self) -> None:
        super().start()
        self.delivery.close()
        client = httpx.Client(timeout=30, trust_env=False)
        self.delivery = Delivery(self.agent.spool, endpoint=self.address, token=self.token, client=client)
