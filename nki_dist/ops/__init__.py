"""Operations: what instructions do, as data."""
