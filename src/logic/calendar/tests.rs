mod dst;
mod expressions;
mod laws;
mod tables;
mod zones;

use super::*;

/// Case that a test asks about.
#[derive(Debug)]
struct Of {
    zone: Option<&'static str>,
    spread: Duration,
    name: &'static str,
}

const UTC: Of = Of { zone: None, spread: Duration::ZERO, name: "report" };

impl Of {
    fn calendar(&self, expression: &str) -> Result<Calendar, CalendarError> {
        Calendar::new(expression, self.zone, self.spread, &self.name.parse().unwrap())
    }

    /// The first instants after one.
    fn next(&self, expression: &str, after: &str, count: usize) -> Vec<String> {
        let calendar = self.calendar(expression).unwrap();
        let after = at(after);
        let next = |after: &StoreTime| calendar.next(*after, StoreTime::from_millis(0));
        std::iter::successors(next(&after), next).take(count).map(|at| at.to_string()).collect()
    }

    fn refused(&self, expression: &str) -> String {
        self.calendar(expression).expect_err("it is wrong").to_string()
    }
}

fn within(zone: &'static str) -> Of {
    Of { zone: Some(zone), ..UTC }
}

fn at(text: &str) -> StoreTime {
    StoreTime::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn seconds(at: i64) -> StoreTime {
    StoreTime::from_millis(at * 1000)
}
