# expect: runtime_error
# row: C60
# hint: no network
import urllib.request


def solution(A_local, B_local):
    urllib.request.urlopen("http://example.org/", timeout=2)
