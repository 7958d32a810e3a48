//! Values of the metrics: a recorder that keeps them.

#![allow(dead_code, reason = "each test binary uses its part of the support")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Keeps every number under the metric's name and labels.
#[derive(Default)]
pub(crate) struct Numbers {
    counters: Registry<AtomicU64>,
    gauges: Registry<AtomicU64>,
    histograms: Registry<Values>,
    says: Mutex<BTreeMap<String, (Option<Unit>, String)>>,
}

type Registry<T> = Mutex<BTreeMap<String, Arc<T>>>;

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

fn entry<T: Default>(registry: &Registry<T>, key: &Key) -> Arc<T> {
    let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
    let name = format!("{}{}", key.name(), labels.collect::<String>());
    registry.lock().unwrap().entry(name).or_default().clone()
}

impl Recorder for Numbers {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, says: SharedString) {
        self.describe(&name, unit, &says);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, says: SharedString) {
        self.describe(&name, unit, &says);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, says: SharedString) {
        self.describe(&name, unit, &says);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(entry(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(entry(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(entry(&self.histograms, key))
    }
}

impl Numbers {
    fn describe(&self, name: &KeyName, unit: Option<Unit>, says: &SharedString) {
        self.says.lock().unwrap().insert(name.as_str().to_owned(), (unit, says.to_string()));
    }

    /// The units and HELP texts, by the metrics' names.
    pub(crate) fn says(&self) -> BTreeMap<String, (Option<Unit>, String)> {
        self.says.lock().unwrap().clone()
    }

    /// The value of a counter that there is.
    pub(crate) fn counts(&self, name: &str) -> Option<u64> {
        self.counters.lock().unwrap().get(name).map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counters.lock().unwrap().get(name).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn gauge(&self, name: &str) -> f64 {
        let gauges = self.gauges.lock().unwrap();
        f64::from_bits(gauges.get(name).unwrap_or_else(|| panic!("no {name}")).load(Ordering::Relaxed))
    }

    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        self.histograms
            .lock()
            .unwrap()
            .get(name)
            .map_or_else(Vec::new, |values| values.0.lock().unwrap().clone())
    }
}

#[track_caller]
pub(crate) fn is(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}
