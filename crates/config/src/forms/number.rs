//! Numbers in a range.

use std::{fmt::Display, ops::RangeInclusive};

use super::form::Form;
use spotter_core::{LookRate, Share};

/// A number in a range.
pub(crate) fn number(range: RangeInclusive<f64>, unit: &str) -> Form<'static, f64> {
    as_number(range, unit, |number| number, |number| number)
}

pub(crate) fn look_rate() -> Form<'static, LookRate> {
    let unit = "looks per second";
    as_number(LookRate::RANGE, unit, LookRate::nearest, LookRate::hz)
}

pub(crate) fn share() -> Form<'static, Share> {
    as_number(Share::RANGE, "", Share::nearest, Share::get)
}

fn as_number<T: Copy + 'static>(
    range: RangeInclusive<f64>,
    unit: &str,
    make: fn(f64) -> T,
    number: fn(T) -> f64,
) -> Form<'static, T> {
    let text = in_words("number", &range, unit);
    let form = Form::new(text, move |value| {
        let number = value.checked(number_in(value.number()?, &range))?;
        Some(make(number))
    });
    form.written(move |value| number(*value).to_string())
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

/// The number, when it is within `range`.
fn number_in(number: f64, range: &RangeInclusive<f64>) -> Result<f64, String> {
    if number.is_nan() {
        return Err("nan is not a number".to_owned());
    }
    // Debug keeps 1e300 short; whole numbers are shown without ".0".
    let shown = |number: &f64| format!("{number:?}").trim_end_matches(".0").to_owned();
    in_range(number, range, shown)
}

/// The value, when it is within `range`; `shown` is how messages write one.
pub(crate) fn in_range<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    shown: impl Fn(&T) -> String,
) -> Result<T, String> {
    let limit = match &value {
        low if low < range.start() => format!("below {}", shown(range.start())),
        high if high > range.end() => format!("above {}", shown(range.end())),
        _ => return Ok(value),
    };
    Err(format!("{} is {limit}", shown(&value)))
}
