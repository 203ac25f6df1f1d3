CREATE TABLE lease (
    name text PRIMARY KEY,
    owner bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
