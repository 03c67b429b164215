-- Give a claim back.
--
-- ARGV  1 nonce of the claim
-- Reply {'released'}, whosever it is by now
if redis.call('HGET', span, 'claim') == ARGV[1] then
  redis.call('HDEL', span, 'claim', 'by', 'until')
end
return {'released'}
