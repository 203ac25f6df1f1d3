UPDATE store SET next_token = next_token + 1 WHERE next_token <= reserved_to RETURNING next_token - 1, reserved_to - next_token
