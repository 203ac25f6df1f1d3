SELECT store_id, boot_id, time_ns, next_token, reserved_to FROM store
