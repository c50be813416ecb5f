"""Addresses of the pages. Every route stands in the permission table of tests/pages/test_permissions.py too."""

from django.urls import path

from leaderboard.views import (
    analysis,
    board,
    compare,
    documents,
    models,
    runs,
    search,
    status,
    submissions,
    submit,
    teams,
)

urlpatterns = [
    path("", board.leaderboard, name="leaderboard"),
    path("leaderboard.atom", board.board_feed, name="board-feed"),
    path("leaderboard.png", board.board_picture, name="board-picture"),
    path("leaderboard.<slug:kind>", board.board_export, name="board-export"),
    path("analysis/", analysis.analysis, name="analysis"),
    path("compare/", compare.compare, name="compare"),
    path("search/", search.search_page, name="search"),
    path("models/", models.model_list, name="models"),
    path("models/<slug:slug>/", models.model_page, name="model"),
    path("runs/<slug:run_id>/", runs.run_page, name="run"),
    path("runs/<slug:run_id>/live/", runs.run_live, name="run-live"),
    path("runs/<slug:run_id>/steps.<slug:kind>", runs.run_steps, name="run-steps"),
    path("runs/<slug:run_id>/cancel/", runs.run_cancel, name="run-cancel"),
    path("runs/<slug:run_id>/retry/", runs.run_retry, name="run-retry"),
    path("runs/<slug:run_id>/withdraw/", runs.run_withdraw, name="run-withdraw"),
    path("submissions/<slug:submission_id>/", submissions.submission_page, name="submission"),
    path("submissions/<slug:submission_id>/live/", submissions.submission_live, name="submission-live"),
    path("submissions/<slug:submission_id>/source/", submissions.submission_source, name="submission-source"),
    path("submissions/<slug:submission_id>/trace/", submissions.submission_trace, name="submission-trace"),
    path("submit/", submit.submit, name="submit"),
    path("submit/<uuid:upload_id>/", submit.preview, name="preview"),
    path("teams/", teams.own_teams, name="teams"),
    path("teams/new/", teams.team_create, name="team-create"),
    path("teams/<slug:slug>/", teams.team_page, name="team"),
    path("teams/<slug:slug>/models/new/", teams.model_create, name="model-create"),
    path("teams/<slug:slug>/invite/", teams.team_invite, name="team-invite"),
    path(
        "teams/<slug:slug>/invitations/<int:invitation_id>/revoke/", teams.invitation_revoke, name="invitation-revoke"
    ),
    path("invitations/<str:secret>/", teams.invitation_page, name="invitation"),
    path("methodology/", documents.methodology, name="methodology"),
    path("published/", documents.published, name="published"),
    path("cite/", documents.cite, name="cite"),
    path("about/", documents.about, name="about"),
    path("docs/", documents.document_list, name="documents"),
    path("docs/<slug:name>/", documents.document, name="document"),
    path("status/", status.status, name="status"),
]
