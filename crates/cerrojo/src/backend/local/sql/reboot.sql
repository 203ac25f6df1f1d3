UPDATE store SET boot_id = ?1, time_ns = ?2, next_token = reserved_to + 1
