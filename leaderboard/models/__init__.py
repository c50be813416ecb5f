"""The data model, by concept. Rules stand in the modules of one verb each beside this package, not here."""

from leaderboard.models.accounts import ApiToken, Scope, User
from leaderboard.models.choices import BACKENDS, CODES, DECISIONS, PRECISIONS, Provenance, Track
from leaderboard.models.evaluations import (
    ACTIVE_STATES,
    Artifact,
    ArtifactKind,
    Attempt,
    AttemptState,
    Evaluation,
    EvaluationState,
    Standing,
    Verdict,
)
from leaderboard.models.moderation import (
    Announcement,
    AuditEvent,
    Campaign,
    CampaignState,
    PublishedResult,
    PublishedResultKind,
    Review,
    ReviewState,
)
from leaderboard.models.operations import Canary, Tally
from leaderboard.models.ranking import RankedModel
from leaderboard.models.runs import (
    Run,
    RunState,
    SourceFile,
    SourceVisibility,
    Submission,
    Upload,
    UploadState,
    Visibility,
)
from leaderboard.models.scores import EvaluationScore, ScoreVersion, TypeScore
from leaderboard.models.targets import Target, Worker, WorkerState
from leaderboard.models.teams import Invitation, Membership, QuotaEntry, Role, Team

__all__ = [
    "ACTIVE_STATES",
    "BACKENDS",
    "CODES",
    "DECISIONS",
    "PRECISIONS",
    "Announcement",
    "ApiToken",
    "Artifact",
    "ArtifactKind",
    "Attempt",
    "AttemptState",
    "AuditEvent",
    "Campaign",
    "CampaignState",
    "Canary",
    "Evaluation",
    "EvaluationScore",
    "EvaluationState",
    "Invitation",
    "Membership",
    "Provenance",
    "PublishedResult",
    "PublishedResultKind",
    "QuotaEntry",
    "RankedModel",
    "Review",
    "ReviewState",
    "Role",
    "Run",
    "RunState",
    "Scope",
    "ScoreVersion",
    "SourceFile",
    "SourceVisibility",
    "Standing",
    "Submission",
    "Tally",
    "Target",
    "Team",
    "Track",
    "TypeScore",
    "Upload",
    "UploadState",
    "User",
    "Verdict",
    "Visibility",
    "Worker",
    "WorkerState",
]
