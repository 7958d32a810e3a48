//! Values of a line, owned by it.

use tracing::field::{DisplayValue, display};

use crate::model::Holder;

/// A value that a line keeps until it is told, as the log gets it: texts as texts, numbers as numbers.
pub(crate) trait Field {
    type Owned: tracing::Value + Send + 'static;

    fn owned(&self) -> Self::Owned;
}

/// Returns what a line keeps of a value.
pub(crate) fn owned<F: Field + ?Sized>(value: &F) -> F::Owned {
    value.owned()
}

impl Field for str {
    type Owned = String;

    fn owned(&self) -> String {
        self.to_owned()
    }
}

impl Field for String {
    type Owned = Self;

    fn owned(&self) -> Self {
        self.clone()
    }
}

impl<F: Field + ?Sized> Field for &F {
    type Owned = F::Owned;

    fn owned(&self) -> F::Owned {
        (**self).owned()
    }
}

impl<F: Field> Field for Option<F> {
    type Owned = Option<F::Owned>;

    fn owned(&self) -> Self::Owned {
        self.as_ref().map(Field::owned)
    }
}

macro_rules! fields {
    ($($plain:ty),*) => {
        $(impl Field for $plain {
            type Owned = Self;

            fn owned(&self) -> Self {
                *self
            }
        })*
    };
}

impl Field for Holder {
    type Owned = DisplayValue<String>;

    fn owned(&self) -> Self::Owned {
        display(self.to_string())
    }
}

fields!(bool, i32, i64, u16, u32, u64, usize);
