//! Starts, freezes, kills and crashes real things for tests. Knows nothing of cerrojo.
