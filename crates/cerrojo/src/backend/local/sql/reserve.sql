UPDATE store SET reserved_to = next_token + ?1
