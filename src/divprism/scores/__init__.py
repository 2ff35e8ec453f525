"""The scores: their table, their settings, and the functions that compute one."""
