UPDATE store SET next_token = next_token + 1 WHERE next_token <= grant_to RETURNING next_token - 1, grant_to - next_token + 1
