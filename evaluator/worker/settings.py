"""Settings of an evaluation worker, read from the environment."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class SettingError(ValueError):
    """A setting is missing or malformed; the text names the variable."""


class WorkerSettings(BaseModel):
    """Field aliases are the names of the environment variables."""

    model_config = ConfigDict(frozen=True)

    redis_url: str = Field(
        "redis://localhost:6379/0",
        alias="REDIS_URL",
        min_length=1,
        description="The broker, with this worker's own user and password: `manage.py register_worker` prints it.",
    )
    target: str = Field(
        alias="PKB_TARGET", min_length=1, description="Target that this host evaluates for; must be its own hardware."
    )
    name: str = Field(
        alias="PKB_WORKER_NAME", min_length=1, description="Name under which the worker was registered on the site."
    )
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        alias="PKB_WORKER_KEY", description="Key that `manage.py register_worker` printed; signs every message."
    )
    judge: str = Field(
        shlex.join([sys.executable, "-m", "evaluator", "judge"]),
        alias="PKB_JUDGE",
        description="Command line of the judge, for example to bind it to a NUMA node with numactl.",
    )
    heartbeat_seconds: float = Field(
        10, alias="PKB_HEARTBEAT_SECONDS", gt=0, le=60, description="How often a busy worker gives a sign of life."
    )
    claim_seconds: float = Field(
        60, alias="PKB_CLAIM_SECONDS", gt=0, le=3_600, description="After how long the claim of a dead worker expires."
    )
    hello_seconds: float = Field(
        30, alias="PKB_HELLO_SECONDS", gt=0, le=600, description="How often the worker says that it exists."
    )
    orders_seconds: float = Field(
        2,
        alias="PKB_ORDERS_SECONDS",
        gt=0,
        le=60,
        description="How often an idle worker asks whether it may take work.",
    )
    measured_peaks: str = Field(
        "",
        alias="PKB_MEASURED_PEAKS",
        description="File of `python -m evaluator peaks --write`; its rates stand in where a target has no peaks.",
    )
    only_demonstration: bool = Field(
        False,
        alias="PKB_ONLY_DEMONSTRATION",
        description="Evaluates the demonstration files alone, unsandboxed; ./run sets it where there is no sandbox.",
    )
    log_level: str = Field("INFO", alias="LOG_LEVEL", description="Least severe log line that is written.")
    log_format: str = Field("json", alias="LOG_FORMAT", description="json for machines, console for people.")

    @property
    def judge_command(self) -> list[str]:
        return shlex.split(self.judge)

    @property
    def key_bytes(self) -> bytes:
        return bytes.fromhex(self.key)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Raises ``SettingError`` that names every variable that is missing or malformed."""
        names = {field.alias for field in cls.model_fields.values()}
        try:
            return cls.model_validate({name: value for name, value in environment.items() if name in names})
        except ValidationError as error:
            # Without the input: one of the values is a key.
            reasons = [f"{e['loc'][0]}: {e['msg']}" for e in error.errors(include_input=False)]
            raise SettingError("The worker cannot start. " + "; ".join(reasons)) from None
