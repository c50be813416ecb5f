"""GEMM without communication: only right if there is one rank."""


def solution(A_local, B_local):
    return A_local @ B_local
