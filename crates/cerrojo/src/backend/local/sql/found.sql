INSERT INTO store (one, store_id, boot_id, time_ns, next_token, reserved_to, grant_to) VALUES (1, ?1, ?2, ?3, 1, 0, 0)
