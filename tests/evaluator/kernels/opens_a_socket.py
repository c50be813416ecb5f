# expect: runtime_error
# row: C60
# hint: no network
import socket


def solution(A_local, B_local):
    socket.create_connection(("192.0.2.1", 80), timeout=2)
