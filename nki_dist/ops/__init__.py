"""Operations: what instructions do, as data: a function of a closed list, and its arguments.

Arguments are arrays, or places where arrays will be. Knows no instruction.
"""
