//! Values of the metrics: a recorder that keeps them. A process has one; each test that counts has a namespace of its
//! own.

#![allow(dead_code, reason = "each test binary uses its part of the support")]

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc, LazyLock, Mutex, Once,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Keeps every number under the metric's name and labels.
#[derive(Default)]
struct Kept {
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

impl Recorder for &Kept {
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

impl Kept {
    fn describe(&self, name: &KeyName, unit: Option<Unit>, says: &SharedString) {
        self.says.lock().unwrap().insert(name.as_str().to_owned(), (unit, says.to_string()));
    }
}

static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);
static INSTALLED: Once = Once::new();
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// The namespace of this thread's test.
pub(crate) fn namespace() -> String {
    match NUMBER.get() {
        0 => "test".to_owned(),
        number => format!("test-{number}"),
    }
}

/// Numbers that the test of this thread counts, until it is dropped. In the names of metrics, its namespace is `test`.
pub(crate) struct Numbers {
    namespace: String,
}

impl Drop for Numbers {
    fn drop(&mut self) {
        NUMBER.set(0);
    }
}

impl Numbers {
    /// Before the first instance.
    pub(crate) fn start() -> Self {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
        INSTALLED.call_once(|| metrics::set_global_recorder(&*KEPT).expect("there is one recorder"));
        Self { namespace: namespace() }
    }

    fn all() -> &'static Kept {
        tenure::words::flush();
        &KEPT
    }

    fn of(&self, name: &str) -> String {
        name.replacen("namespace=test", &format!("namespace={}", self.namespace), 1)
    }

    /// The units and HELP texts, by the metrics' names.
    pub(crate) fn says() -> BTreeMap<String, (Option<Unit>, String)> {
        Self::all().says.lock().unwrap().clone()
    }

    /// The value of a counter that there is.
    pub(crate) fn counts(&self, name: &str) -> Option<u64> {
        let counters = Self::all().counters.lock().unwrap();
        counters.get(&self.of(name)).map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts(name).unwrap_or(0)
    }

    pub(crate) fn gauge(&self, name: &str) -> f64 {
        let (gauges, name) = (Self::all().gauges.lock().unwrap(), self.of(name));
        f64::from_bits(gauges.get(&name).unwrap_or_else(|| panic!("no {name}")).load(Ordering::Relaxed))
    }

    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let histograms = Self::all().histograms.lock().unwrap();
        histograms.get(&self.of(name)).map_or_else(Vec::new, |values| values.0.lock().unwrap().clone())
    }
}

#[track_caller]
pub(crate) fn is(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}
