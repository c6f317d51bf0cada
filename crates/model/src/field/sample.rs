//! Values drawn from random bytes, which a property test or a fuzzer supplies, and shrinks.

/// A source of choices. When its bytes are used up, every choice is the first, so what is drawn ends.
#[derive(Debug)]
pub struct Samples<'a>(&'a [u8]);

impl<'a> Samples<'a> {
    pub fn new(bytes: &'a [u8]) -> Samples<'a> {
        Samples(bytes)
    }

    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// A number below `end`, which is at most 256.
    ///
    /// # Panics
    /// If `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Any number: small ones, ones of all lengths, and the largest.
    pub fn number(&mut self) -> u64 {
        match self.below(5) {
            0 => u64::from(self.byte()),
            1 => u64::MAX,
            2 => u64::from(self.byte()) << 56 | 1,
            bytes => (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let count = self.below(40);
        (0..count).map(|_| self.byte()).collect()
    }

    /// Text of one to three bytes a character.
    pub fn text(&mut self) -> String {
        let count = self.below(20);
        (0..count).map(|_| self.one_of(&['a', '/', ' ', 'é', '道'])).collect()
    }
}
