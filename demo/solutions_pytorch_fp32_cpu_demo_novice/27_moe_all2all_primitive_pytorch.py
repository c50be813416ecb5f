"""Uses a package that is not there."""

import deep_all_to_all


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    return deep_all_to_all.exchange(local_tensor, input_split_sizes, output_split_sizes)
