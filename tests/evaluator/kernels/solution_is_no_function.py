# expect: import_error
# message: solution is a int, not a function
solution = 13
