SELECT store_id, boot_id, time_ns, grant_to - next_token + 1 FROM store
