UPDATE store SET grant_to = reserved_to
