//! Which instructions kernels use: found out once, forced by `JUSTAPI_CPU`,
//! carried by value as the proof that the processor has them.

use std::env;

use crate::error::Error;

/// Instructions that kernels use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    /// Those that every processor has.
    Portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// Proof that the processor has AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Returns the proof, if it is so.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

impl Isa {
    /// Returns the best that the processor has.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Portable
    }

    /// Returns what `JUSTAPI_CPU` asks for (`scalar`, `avx2`), or else the best.
    ///
    /// # Errors
    /// [`Error::Setting`] if the processor lacks it, or nobody knows it.
    pub(crate) fn from_environment() -> Result<Self, Error> {
        match env::var("JUSTAPI_CPU") {
            Err(_) => Ok(Self::best()),
            Ok(name) => Self::named(&name),
        }
    }

    /// Returns what a name stands for.
    ///
    /// # Errors
    /// [`Error::Setting`] if the processor lacks it, or nobody knows it.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::Setting {
            setting: "JUSTAPI_CPU",
            value: name.to_owned(),
            reason: reason.to_owned(),
        };
        match name {
            "scalar" => Ok(Self::Portable),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Avx2::detect()
                .map(Self::Avx2)
                .ok_or_else(|| refuse("this processor lacks AVX2, FMA or F16C")),
            _ => Err(refuse("expected scalar or avx2")),
        }
    }
}

/// Defines a function that runs a body over [`Lanes`](super::lanes::Lanes) with the instructions of an [`Isa`].
macro_rules! dispatch {
    ($(#[$meta:meta])* fn $name:ident $(<$g:ident: $bound:ident>)? ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $body:path;) => {
        $(#[$meta])*
        pub(crate) fn $name $(<$g: $bound>)? (isa: $crate::kernels::isa::Isa, $($argument: $type),*) $(-> $result)? {
            match isa {
                $crate::kernels::isa::Isa::Portable => $body($crate::kernels::isa::Portable, $($argument),*),
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Isa::Avx2(proof) => {
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn featured $(<$g: $bound>)? (proof: $crate::kernels::isa::Avx2, $($argument: $type),*) $(-> $result)? {
                        $body(proof, $($argument),*)
                    }
                    // SAFETY: `proof` exists only where the processor has these features.
                    unsafe { featured(proof, $($argument),*) }
                }
            }
        }
    };
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    fn names_are_those_that_are_documented() {
        assert!(matches!(Isa::named("scalar"), Ok(Isa::Portable)));
        assert!(Isa::named("mmx").is_err());
        #[cfg(target_arch = "x86_64")]
        assert_eq!(Isa::named("avx2").is_ok(), super::Avx2::detect().is_some());
    }
}
