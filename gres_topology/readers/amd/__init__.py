"""What AMD's tools print: `amd_smi`, and `rocm_smi` of older ROCm.

Both ask the same library, so one machine must come of what either says: `kfd` has what they share.
"""
