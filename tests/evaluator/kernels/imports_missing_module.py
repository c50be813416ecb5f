# expect: import_error
# message: No module named 'leaderboard'
# hint: standard library
import leaderboard


def solution(A_local, B_local):
    return leaderboard
