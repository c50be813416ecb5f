# expect: runtime_error
# message: No space left on device|File too large
def solution(A_local, B_local):
    with open("/tmp/big", "wb") as file:
        while True:
            file.write(bytes(16 * 1024 * 1024))
