//! What the scripts answer.

use std::time::Duration;

use redis::Value;

use super::{error::RedisError, format::Seen};

/// What `acquire.lua` answers.
#[derive(Debug)]
pub(in crate::backend) enum Answer {
    Granted,
    Refused(Refusal),
}

#[derive(Debug)]
pub(in crate::backend) struct Refusal {
    /// When a waiter asks again unless it is told to earlier.
    pub(in crate::backend) ask_again_in: Duration,
    /// `None`: the lock is free, but others are first.
    pub(in crate::backend) seen: Option<Seen>,
}

pub(in crate::backend) fn is_grant(answer: &Value) -> bool {
    matches!(answer, Value::Array(parts) if parts.as_slice() == [Value::Int(1)])
}

pub(in crate::backend) fn of_acquire(answer: Value) -> Result<Answer, RedisError> {
    if is_grant(&answer) {
        return Ok(Answer::Granted);
    }
    let parts: Result<[Value; 5], _> = match answer {
        Value::Array(parts) => parts.try_into(),
        other => Err(vec![other]),
    };
    let [_, Value::Int(again), Value::Int(pttl), held, Value::Int(at)] =
        parts.map_err(|parts| wrong(&parts))?
    else {
        return Err(wrong(&[]));
    };
    let seen = bytes(held)?.map(|value| Seen { pttl, value, at: positive(at) });
    Ok(Answer::Refused(Refusal { ask_again_in: Duration::from_millis(positive(again)), seen }))
}

/// What `holder.lua` and `break.lua` answer.
pub(in crate::backend) fn of_look(answer: Value) -> Result<Option<Seen>, RedisError> {
    let parts: Result<[Value; 3], _> = match answer {
        Value::Nil => return Ok(None),
        Value::Array(parts) => parts.try_into(),
        other => Err(vec![other]),
    };
    let [Value::Int(pttl), held, Value::Int(at)] = parts.map_err(|parts| wrong(&parts))? else {
        return Err(wrong(&[]));
    };
    Ok(bytes(held)?.map(|value| Seen { pttl, value, at: positive(at) }))
}

pub(in crate::backend) fn yes(answer: &Value) -> Result<bool, RedisError> {
    match answer {
        Value::Int(number) => Ok(*number == 1),
        other => Err(wrong(std::slice::from_ref(other))),
    }
}

fn bytes(value: Value) -> Result<Option<Vec<u8>>, RedisError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        other => Err(wrong(&[other])),
    }
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn wrong(parts: &[Value]) -> RedisError {
    RedisError::Answer(format!("{parts:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Value {
        Value::BulkString(b"owner".to_vec())
    }

    #[test]
    fn grants_and_refusals_are_told_apart() {
        assert!(matches!(of_acquire(Value::Array(vec![Value::Int(1)])), Ok(Answer::Granted)));
        let parts = vec![Value::Int(0), Value::Int(7), Value::Int(9), held(), Value::Int(5)];
        let Ok(Answer::Refused(refusal)) = of_acquire(Value::Array(parts)) else { panic!() };
        assert_eq!(refusal.ask_again_in, Duration::from_millis(7));
        assert_eq!(refusal.seen.unwrap().value, b"owner");
    }

    #[test]
    fn what_no_script_of_ours_answers_is_unknown() {
        let odd = [Value::Nil, Value::Okay, Value::Int(1), Value::Array(vec![]), held()];
        for value in odd {
            assert!(of_acquire(value.clone()).is_err(), "{value:?}");
        }
        assert!(of_look(Value::Int(3)).is_err());
        assert!(yes(&Value::Nil).is_err());
    }
}
