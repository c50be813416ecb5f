"""The envelope in which everything from a worker comes."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Literal, Self

from pydantic import Field

from evaluator.contract.base import MAX_MESSAGE_BYTES, ContractModel, Name

Kind = Literal["progress", "report", "claim", "hello", "decline", "canary", "trace"]
"""What a worker says: ``canary`` is the Report of a canary, ``trace`` a TracePart, the others the models so named."""


class Signed(ContractModel):
    """A message from a worker, signed with its key: ``body`` is JSON text of the model that ``kind`` names."""

    worker: Name
    kind: Kind
    body: Annotated[str, Field(max_length=MAX_MESSAGE_BYTES)]
    mac: Annotated[str, Field(min_length=64, max_length=64)]

    @classmethod
    def seal(cls, *, worker: str, kind: Kind, body: str, key: bytes) -> Self:
        return cls(worker=worker, kind=kind, body=body, mac=_mac(worker, kind, body, key))

    def verify(self, key: bytes) -> bool:
        """True if body, kind and worker name are what the holder of ``key`` signed."""
        return hmac.compare_digest(self.mac, _mac(self.worker, self.kind, self.body, key))


def _mac(worker: str, kind: str, body: str, key: bytes) -> str:
    text = f"{worker}\n{kind}\n{body}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()
