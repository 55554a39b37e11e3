//! Angles and roots in integers. An angle is a `u16`: 65,536 is a full turn, 0 points right, growing towards y (clockwise on a
//! screen). Sines and cosines are in 65,536ths.

/// 1.0 of a sine, and of a share of a way.
pub(crate) const ONE: i32 = 1 << 16;

/// Steps of the sine table in a quarter turn.
const STEPS: usize = 1024;
/// Angle from one entry of the table to the next.
const STEP: u16 = 16;
const QUARTER: u16 = 1 << 14;

static SINES: [i32; STEPS + 1] = sines();

/// The quarter wave by its series, in 2³⁰ths.
const fn sines() -> [i32; STEPS + 1] {
    const HALF_PI: i64 = 1_686_629_713; // π/2 · 2³⁰
    let mut table = [0; STEPS + 1];
    let mut index = 0;
    while index <= STEPS {
        let x = HALF_PI * index as i64 / STEPS as i64;
        let square = (x * x) >> 30;
        let (mut sum, mut term, mut n) = (x, x, 1);
        while n <= 11 {
            term = -((term * square) >> 30) / ((n + 1) * (n + 2));
            sum += term;
            n += 2;
        }
        table[index] = ((sum + (1 << 13)) >> 14) as i32;
        index += 1;
    }
    table
}

/// Cosine and sine of an angle.
pub fn direction(angle: u16) -> (i32, i32) {
    (sine(angle.wrapping_add(QUARTER)), sine(angle))
}

fn sine(angle: u16) -> i32 {
    let within = angle & (QUARTER - 1);
    match angle >> 14 {
        0 => rising(within),
        1 => rising(QUARTER - within),
        2 => -rising(within),
        _ => -rising(QUARTER - within),
    }
}

/// Sine of 0 to a quarter turn, both included.
fn rising(angle: u16) -> i32 {
    let index = usize::from(angle / STEP);
    let rest = i32::from(angle % STEP);
    match SINES.get(index + 1) {
        Some(next) => SINES[index] + (next - SINES[index]) * rest / i32::from(STEP),
        None => SINES[STEPS],
    }
}

/// The angle of a vector; 0 for no vector at all.
pub fn angle_of(x: i32, y: i32) -> u16 {
    let (width, height) = (i64::from(x).abs(), i64::from(y).abs());
    // The largest angle in the first quarter that does not lie beyond the vector.
    let (mut low, mut high) = (0, QUARTER);
    if width == 0 && height == 0 {
        return 0;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let (cos, sin) = (i64::from(rising(QUARTER - middle)), i64::from(rising(middle)));
        if cos * height >= sin * width {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    match (x >= 0, y >= 0) {
        (true, true) => low,
        (false, true) => (QUARTER * 2) - low,
        (false, false) => (QUARTER * 2) + low,
        (true, false) => 0u16.wrapping_sub(low),
    }
}

/// Signed way from one angle to another, the short one round.
pub(crate) fn turn(from: u16, to: u16) -> i16 {
    to.wrapping_sub(from) as i16
}

/// Length of a vector, rounded down.
pub(crate) fn length(x: i32, y: i32) -> i32 {
    square(x, y).unsigned_abs().isqrt() as i32
}

/// Length of a vector, squared.
pub(crate) fn square(x: i32, y: i32) -> i64 {
    let (x, y) = (i64::from(x), i64::from(y));
    x * x + y * y
}

/// `value · share`, where `share` is in 65,536ths.
pub(crate) fn scale(value: i32, share: i32) -> i32 {
    (i64::from(value) * i64::from(share) / i64::from(ONE)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_agree_with_the_mathematical_ones() {
        for angle in (0..=u16::MAX).step_by(7) {
            let turn = f64::from(angle) / 65_536.0 * std::f64::consts::TAU;
            let (cos, sin) = direction(angle);
            assert!(
                (f64::from(cos) / 65_536.0 - turn.cos()).abs() < 4e-5,
                "cosine of {angle}"
            );
            assert!((f64::from(sin) / 65_536.0 - turn.sin()).abs() < 4e-5, "sine of {angle}");
        }
    }

    #[test]
    fn the_angle_of_a_direction_is_the_angle_it_was_made_of() {
        for angle in 0..=u16::MAX {
            let (cos, sin) = direction(angle);
            let found = angle_of(cos, sin);
            assert!(turn(angle, found).abs() <= 3, "{angle} came back as {found}");
        }
    }

    #[test]
    fn turning_takes_the_short_way_round() {
        assert_eq!(turn(65_000, 500), 1036);
        assert_eq!(turn(500, 65_000), -1036);
    }
}
