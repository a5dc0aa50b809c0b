//! Numbers in a range.

use std::{fmt::Display, ops::RangeInclusive};

use super::form::Form;
use crate::read::value::ConfigValue;
use spotter_core::{LookRate, Share, ValueError};

/// A number in a range.
pub(crate) fn number(range: RangeInclusive<f64>, unit: &str) -> Form<'static, f64> {
    let text = in_words("number", &range, unit);
    let form = Form::new(text, move |value| {
        of_number(value, |number| match range.contains(&number) {
            true => Ok(number),
            false => Err(ValueError::OutOfRange {
                value: number,
                least: *range.start(),
                most: *range.end(),
            }),
        })
    });
    form.written(f64::to_string)
}

pub(crate) fn look_rate() -> Form<'static, LookRate> {
    let text = in_words("number", &LookRate::RANGE, "looks per second");
    Form::new(text, |value| of_number(value, LookRate::new)).written(LookRate::to_string)
}

pub(crate) fn share() -> Form<'static, Share> {
    let text = in_words("number", &Share::RANGE, "");
    Form::new(text, |value| of_number(value, Share::new)).written(Share::to_string)
}

fn of_number<T>(
    value: &ConfigValue<'_>,
    make: impl FnOnce(f64) -> Result<T, ValueError>,
) -> Option<T> {
    let made = make(value.number()?);
    value.checked(made.map_err(|error| error.to_string()))
}

/// A whole number in a range.
pub(crate) fn whole<T>(range: RangeInclusive<T>, unit: &str) -> Form<'static, T>
where
    T: Copy + Display + TryFrom<i128> + TryInto<i128> + 'static,
{
    let text = in_words("whole number", &range, unit);
    let form = Form::new(text, move |value| {
        let [low, high] = [range.start(), range.end()].map(|limit| (*limit).try_into().ok());
        let limits = low?..=high?;
        let number = value.checked(in_range(value.whole()?, &limits, i128::to_string))?;
        T::try_from(number).ok()
    });
    form.written(T::to_string)
}

fn in_words<T: Display>(kind: &str, range: &RangeInclusive<T>, unit: &str) -> String {
    let (low, high) = (range.start(), range.end());
    match unit {
        "" => format!("{kind}, {low} to {high}"),
        unit => format!("{kind}, {low} to {high} ({unit})"),
    }
}

/// `true` or `false`.
pub(crate) fn flag() -> Form<'static, bool> {
    Form::new("true or false", |value| value.flag()).written(bool::to_string)
}

/// The value, when it is within `range`; `shown` is how messages write one.
pub(crate) fn in_range<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    shown: impl Fn(&T) -> String,
) -> Result<T, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => {
            let [value, least, most] = [&value, range.start(), range.end()].map(shown);
            Err(format!("{value} is not within {least} to {most}"))
        }
    }
}
