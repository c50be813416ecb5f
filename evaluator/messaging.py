"""How jobs and reports travel: names of queues, tasks and keys in the broker, and the Celery settings of every app.

Beside ``evaluator.contract`` the only module that both sides share. Imports neither Celery nor Django nor torch.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

EVALUATE_TASK = "evaluate"
RECORD_TASK = "record"
RESULTS_QUEUE = "results"
WEB_QUEUE = "web"

# Nothing may be delivered a second time while it may still run: a task that is not acknowledged after this time goes
# to another worker, although the first still works on it. The longest evaluation is capped at a quarter of it.
VISIBILITY_TIMEOUT = 6 * 3_600  # seconds
# Records and reaping take well under a second and may run twice, so what a killed process held comes back soon.
SHORT_VISIBILITY_TIMEOUT = 60  # seconds

CLOSED_MARK_SECONDS = 2 * VISIBILITY_TIMEOUT  # outlives every delivery of the attempt's wake-up


def evaluation_queue(target: str) -> str:
    """Queue of the wake-ups for the workers of ``target``."""
    return f"eval.{target}"


def host_queue(worker: str) -> str:
    """Queue of what one worker alone must do: canaries. It is read also while the worker takes no other work."""
    return f"host.{worker}"


def claim_key(target: str, attempt_id: UUID | str) -> str:
    """Key in the broker that the worker which evaluates the attempt holds; it expires when the worker dies."""
    return f"pkb:claim:{target}:{attempt_id}"


def closed_key(attempt_id: UUID | str) -> str:
    """Key in the broker that says that no report of the attempt is wanted any more: lost, cancelled or recorded.

    GPU hosts have no database, so this is how they learn that a wake-up is stale and that an evaluation may be
    stopped. It saves work only; the database decides what is recorded.
    """
    return f"pkb:closed:{attempt_id}"


def orders_key(worker: str) -> str:
    """Key in the broker under which the site tells a worker whether it may take work: ``contract.Orders``, JSON."""
    return f"pkb:orders:{worker}"


def celery_settings(consumer: str, *, visibility_timeout: int) -> dict[str, Any]:
    """Settings of every Celery app of the project, each with what it prevents.

    ``consumer`` names the group of workers that share queues, such as "results" or "eval.h100x4";
    ``visibility_timeout``: seconds after which a message that none of them acknowledged is delivered again.
    """
    return {
        # Only text that validates against the contract is ever read: a pickle from a GPU host would run code here.
        "accept_content": ["json"],
        "task_serializer": "json",
        # States and results live in the database; nobody reads Celery's.
        "task_ignore_result": True,
        # The message is the only trace of a job outside of the database: keep it until the work is done, or a killed
        # worker takes its job along.
        "task_acks_late": True,
        # With the default, Celery acknowledges the message of a child that was killed, and the job is lost.
        "task_reject_on_worker_lost": True,
        # With the default, an exception acknowledges the message as if the job were done. Without it the message is
        # rejected: it goes too, but as a failure that is logged, and the reaper finds the job in the database.
        "task_acks_on_failure_or_timeout": False,
        # A worker must not hoard jobs that another could do now, nor lose them when it dies.
        "worker_prefetch_multiplier": 1,
        # A restart of the broker must not end a worker.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # Celery's default is to cancel what runs when the connection breaks: a blip would throw evaluations away.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "broker_transport_options": {
            "visibility_timeout": visibility_timeout,
            # By default all consumers keep what they hold under the same keys, and the one with the shortest timeout
            # gives everybody's messages back: evaluations that still run would be delivered again.
            "unacked_key": f"unacked.{consumer}",
            "unacked_index_key": f"unacked_index.{consumer}",
            "unacked_mutex_key": f"unacked_mutex.{consumer}",
            # Look for such messages every 10 seconds, not every 100.
            "unacked_restore_throttle": 1,
            # Whose file is next is decided in the database. One list a queue, so one key in a worker's rights.
            "priority_steps": [0],
            # A broker that is gone is noticed in seconds, also behind a NAT that drops idle connections silently.
            "socket_timeout": 20,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        # Remote control and events would let any holder of broker credentials stop other workers.
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        # The logs are ours: one format, one place.
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "task_default_queue": "default",
        "enable_utc": True,
        "timezone": "UTC",
    }
